DROP TABLE recovery_quorum;

DROP TABLE key_terms;
