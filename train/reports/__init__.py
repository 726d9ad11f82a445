"""What a run says: its plan, the card of the tuned model, the statistics and pictures of a study."""
