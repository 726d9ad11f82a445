"""What a run says: its plan, its log and held-out figures, the card of the tuned model, the statistics of a study."""
