"""What an engine answers: `engine` the whole, `sampling` samplers, `generation` generators; `check` tests it."""
