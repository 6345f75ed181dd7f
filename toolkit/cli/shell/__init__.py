"""The shell around commands: options, answers, errors, progress, exit codes."""
