"""The plugin: built, loaded, and hooked into MXNet."""
