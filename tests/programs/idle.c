/* idle: pauses at once; nothing in it calls malloc. */
#include "target.h"

int main(void)
{
    park();
}
