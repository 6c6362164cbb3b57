// A label of 28 bytes is copied into a block of 24; with "double" two rows free one unit (radareorg/radare2#688,
// neuronsimulator/nrn#1303).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct row { char *label; char *unit; double value; };
static struct row *rows[200];

static char *label_of(int n)
{
	char text[64];
	int len = snprintf(text, sizeof text, "sensor-%05d-temperature-in", n);  // 27 characters
	char *copy = malloc(len - 3);                                           // 24 bytes for 28
	memcpy(copy, text, len + 1);
	return copy;
}

int main(int argc, char **argv)
{
	puts("READY");
	fflush(stdout);
	getchar();
	for (int i = 0; i < 200; i++) {
		rows[i] = malloc(sizeof(struct row));
		rows[i]->unit = strdup("celsius");
		rows[i]->value = i;
		rows[i]->label = i == 120 && argc == 1 ? label_of(i) : strdup("ok");
	}
	if (argc > 1) {
		rows[60]->unit = rows[61]->unit;  // shared by mistake
		for (int i = 0; i < 200; i++) free(rows[i]->unit);
	}
	for (int i = 199; i >= 0; i--) {
		free(rows[i]->label);
		free(rows[i]);
	}
	return 0;
}
