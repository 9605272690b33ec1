/* Two nodes in one process: one order, one answer.
 *
 *   cc hello.c $(pkg-config --cflags --libs denrei) -o hello && ./hello
 */
#include <denrei/denrei.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(denrei_code code, const char *what) {
  if (code != DENREI_OK) {
    fprintf(stderr, "%s: %s\n", what, denrei_error_message());
    exit(1);
  }
}

int main(void) {
  denrei_config *config = denrei_config_new();
  check(denrei_config_set(config, "drive", "thread"), "setting drive");

  denrei_node *alice, *bob;
  check(denrei_node_open("127.0.0.1:0", config, &alice), "opening alice");
  check(denrei_node_open("127.0.0.1:0", config, &bob), "opening bob");
  denrei_config_free(config);

  char address[64];
  check(denrei_node_address(bob, address, sizeof address), "asking for bob's address");
  denrei_peer peer;
  check(denrei_connect(alice, address, &peer), "connecting");

  const char *order = "one order for many";
  check(denrei_send(alice, peer, 0, order, strlen(order)), "sending");

  denrei_message *message;
  check(denrei_recv(bob, 5000000, &message), "receiving");
  printf("bob received %zu bytes: %.*s\n", denrei_message_length(message),
         (int)denrei_message_length(message), (const char *)denrei_message_data(message));
  check(denrei_send(bob, denrei_message_peer(message), denrei_message_channel(message), "thanks", 6),
        "answering");
  denrei_message_free(message);

  check(denrei_recv(alice, 5000000, &message), "receiving the answer");
  printf("alice received %zu bytes: %.*s\n", denrei_message_length(message),
         (int)denrei_message_length(message), (const char *)denrei_message_data(message));
  denrei_message_free(message);

  denrei_flow_state flow;
  check(denrei_flow(alice, peer, &flow), "looking at the flow");
  printf("round trip %.1f us, window %llu bytes\n", (double)flow.srtt_ns / 1000.0,
         (unsigned long long)flow.window_bytes);

  denrei_node_free(alice);
  denrei_node_free(bob);
  return 0;
}
