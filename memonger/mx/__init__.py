"""The only folder that imports MXNet: reading, applying, checking and measuring symbols."""
