/* One order to many: a node sends to a group of three, each member reads until the group ends.
 *
 *   cc group.c $(pkg-config --cflags --libs denrei) -o group && ./group
 */
#include <denrei/denrei.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 3, SECOND = 1000000 };

static void check(denrei_code code, const char *what) {
  if (code != DENREI_OK) {
    fprintf(stderr, "%s: %s\n", what, denrei_error_message());
    exit(1);
  }
}

static denrei_node *open_node(void) {
  denrei_config *config = denrei_config_new();
  check(denrei_config_set(config, "drive", "thread"), "setting drive");
  denrei_node *node;
  check(denrei_node_open("127.0.0.1:0", config, &node), "opening a node");
  denrei_config_free(config);
  return node;
}

int main(int argc, char **argv) {
  const char *address = argc > 1 ? argv[1] : "239.255.78.60:7411";

  /* Members join the address first; then the opener names them. */
  denrei_node *nodes[MEMBERS];
  denrei_group_listener *listeners[MEMBERS];
  char names[MEMBERS][64];
  const char *members[MEMBERS];
  for (int i = 0; i < MEMBERS; i++) {
    nodes[i] = open_node();
    check(denrei_group_join(nodes[i], address, &listeners[i]), "joining");
    check(denrei_node_address(nodes[i], names[i], sizeof names[i]), "asking for an address");
    members[i] = names[i];
  }

  denrei_node *opener = open_node();
  denrei_group_options *options = denrei_group_options_new();
  check(denrei_group_options_set(options, "policy", "eject:10s"), "setting the policy");
  denrei_group *group;
  check(denrei_group_open(opener, address, members, MEMBERS, options, &group), "opening the group");
  denrei_group_options_free(options);

  const char *orders[] = {"march", "halt", "to the left"};
  for (int i = 0; i < 3; i++)
    check(denrei_group_send(group, orders[i], strlen(orders[i]), -1, NULL), "sending");

  denrei_membership *memberships[MEMBERS];
  for (int i = 0; i < MEMBERS; i++) {
    check(denrei_group_accept(listeners[i], 5 * SECOND, &memberships[i]), "accepting");
    for (int order = 0; order < 3; order++) {
      denrei_message *message;
      check(denrei_membership_recv(memberships[i], 5 * SECOND, &message), "receiving");
      printf("member %u: order %d: %.*s\n", denrei_membership_member(memberships[i]), order,
             (int)denrei_message_length(message), (const char *)denrei_message_data(message));
      denrei_message_free(message);
    }
  }

  check(denrei_group_close(group, 5 * SECOND), "closing");
  denrei_group_free(group);
  for (int i = 0; i < MEMBERS; i++) {
    denrei_message *message;
    if (denrei_membership_recv(memberships[i], 5 * SECOND, &message) == DENREI_CLOSED)
      printf("member %d: %s\n", i, denrei_error_message());
    denrei_membership_leave(memberships[i]);
    denrei_group_listener_free(listeners[i]);
    denrei_node_free(nodes[i]);
  }
  denrei_node_free(opener);
  return 0;
}
