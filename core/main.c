/* main.c: where the process begins. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return mp_cli(argc, argv);
}
