"""One process that holds a share of the parameters, and updates it when the master says so."""
