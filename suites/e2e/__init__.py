"""Generation: outputs checked token by token, whatever the platform and the proposer."""
