"""What a planned step takes and computes, measured beside the unplanned one."""
