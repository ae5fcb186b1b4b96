"""What must be agreed on columns that nobody pools, before clustering can begin."""
