// A list whose links lie inside of its nodes, as those of kernels and databases do, and a pointer to its middle on the stack:
// intrusive COUNT.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct link {
    struct link *next, *before;
};

struct node {
    long number;
    char data[4000];
    struct link link;
};

struct link nodes = {&nodes, &nodes};

static int wait_with(struct node **volatile middle) {
    char byte;
    return read(0, &byte, 1) < 0 || (*middle)->number < 0;
}

int main(int count, char **arguments) {
    if (count < 2) return 1;
    struct node *middle = NULL;
    int all = atoi(arguments[1]);
    for (int number = 0; number < all; number++) {
        struct node *one = malloc(sizeof *one);
        memset(one, 1, sizeof *one);
        one->number = number;
        one->link = (struct link){&nodes, nodes.before};
        nodes.before->next = &one->link;
        nodes.before = &one->link;
        if (number == all / 2) middle = one;
    }
    return wait_with(&middle);
}
