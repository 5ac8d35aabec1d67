/* cmd/bench_ops.h - lockstep bench ops. */
#ifndef CMD_BENCH_OPS_H
#define CMD_BENCH_OPS_H

/* lockstep bench ops [threads [isa]]: prints, per op that is bound by memory, its time, the bytes
 * that it must move per second, and the share of the rate at which as many threads copy as many
 * bytes, measured in turn with it (medians, and the best of each). Returns the program's exit code.
 */
int cmd_bench_ops(int argc, char **argv);

#endif
