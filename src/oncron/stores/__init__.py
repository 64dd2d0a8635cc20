"""Where replicas meet: one package or module a kind of store."""
