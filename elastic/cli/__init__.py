"""Commands: flags become a JobSpec, the JobSpec one call of a platform."""
