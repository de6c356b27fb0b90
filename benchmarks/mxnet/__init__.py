"""The tables of plans for MXNet networks and other planners' graphs."""
