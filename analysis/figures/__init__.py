"""One file a figure: a query, a drawing, and a command of its own."""
