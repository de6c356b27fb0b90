"""The tables that our claims rest on."""
