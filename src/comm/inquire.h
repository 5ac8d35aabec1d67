/* Asking ranks of other machines where they are. Each process answers, by a thread and a UDP socket
 * of its own, for itself and for its neighbours, whose flight records it can read; so
 * neighbours report one that is stopped, and no answer means that the host is unreachable. Nothing
 * is sent until somebody has waited for a while. What is answered becomes a copy of the record, in
 * the board, so that all that is told of ranks of this machine can be told of those too.
 *
 * A message is taken only if it carries the job's token (random, spread over MPI), has the length
 * of its kind, and holds values in range. */
#ifndef COMM_INQUIRE_H
#define COMM_INQUIRE_H

#include "comm/flight.h"

enum { INQUIRE_ADDRESSES = 4, INQUIRE_TOKEN = 16 };

/* How a rank may be asked, as all are told when a world is made. */
struct inquire_peer {
    int32_t machine;                     /* the lowest rank that shares memory with it */
    uint16_t port;                       /* network order; 0: it cannot be asked */
    uint16_t addresses;                  /* of address[] */
    uint32_t address[INQUIRE_ADDRESSES]; /* IPv4, network order */
    char host[48];
};

struct inquirer;

/* Local. Opens a socket on the addresses of this machine that others can reach, and fills own, but
 * for the machine. NULL if there is none: nobody is to be asked then. */
struct inquirer *inquire_open(struct inquire_peer *own);
/* Local. Answers from here on. peers[board->count] becomes the inquirer's; records of ranks that do
 * not share memory are NULL in the board, and become copies as they are asked for. False (and as
 * before) for want of memory or a thread. */
bool inquire_start(struct inquirer *inquirer, struct flight_board *board, int rank,
                   struct inquire_peer *peers, const unsigned char token[INQUIRE_TOKEN]);
/* NULL is allowed. The copies are gone from the board. */
void inquire_close(struct inquirer *inquirer);

/* All by rank of the world; for one of this machine they do nothing. Asks for where it is, above
 * all in that group, unless it was asked less than interval_s ago. */
void inquire_ask(struct inquirer *inquirer, int rank, uint64_t group, double interval_s);
/* Seconds for which it was asked in vain; 0 if it answers, or was never asked. */
double inquire_silence_s(struct inquirer *inquirer, int rank, double now_s);
const char *inquire_host(const struct inquirer *inquirer, int rank);

#endif
