"""Plans, their files, and the checks that every plan passes before a user gets it."""
