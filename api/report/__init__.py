"""``epsilon report``: the evidence on one dataset that a board reads, and a machine checks."""
