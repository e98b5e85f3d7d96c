DROP TABLE extended_quorum;
