"""Generation: outputs judged token by token, whatever the platform and the proposer."""
