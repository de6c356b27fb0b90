"""What all others use: errors, units, files, signals, the native libraries."""
