"""Link the file summaries of a tree: names, classes, launches, ops, and bindings."""
