"""How long operators take."""
