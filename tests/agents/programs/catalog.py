"""No fault: a dozen tables of about the same size, which the program needs."""

import signal

tables = [{number: str(place * 10**6 + number) * 8 for number in range(6000 + 100 * place)} for place in range(12)]
prices, names, stock, units, taxes, regions, brands, colours, sizes, labels, photos, notes = tables
del tables
print("READY", flush=True)
signal.pause()
