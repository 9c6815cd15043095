"""`hullcast bench streams`: operators, joins in bounded memory and live streams, beside baselines."""
