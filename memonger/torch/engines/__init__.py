"""What other people's trainers need to train by plans, a file for each."""
