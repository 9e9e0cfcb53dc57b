"""What an engine answers: `engine` the whole, `sampling` its samplers, `generation` its generators."""
