"""What carries calls to sites and answers back; one file per way of travelling."""
