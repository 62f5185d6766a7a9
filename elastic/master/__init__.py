"""The process that decides: ledger, parameters, workers, cuts, status."""
