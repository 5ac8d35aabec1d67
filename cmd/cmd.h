/* Sub-commands of the lockstep program: argv[0] is the sub-command's name; the result is the exit
 * code. */
#ifndef CMD_H
#define CMD_H

int cmd_data(int argc, char **argv);

#endif
