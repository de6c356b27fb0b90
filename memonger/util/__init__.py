"""What every room uses: errors, units, files, signals, the native libraries."""
