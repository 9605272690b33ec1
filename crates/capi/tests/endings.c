/* Destructors of a thread's data and functions of atexit run when the thread has let go of its own, and may use nodes
 * and sockets all the same. Prints "ok" at the end. */
#include "check.h"
#include <denrei/suci.h>
#include <pthread.h>

#define SECOND 1000000LL

static pthread_key_t key;
static denrei_node *from, *to;
static denrei_peer peer;
static datagram_socket *sock;
static int endings;

static void use(void) {
  denrei_message *message = NULL;
  OK(denrei_send(from, peer, 0, "last", 4));
  OK(denrei_recv(to, 5 * SECOND, &message));
  denrei_message_free(message);
  OK(denrei_flush(from, peer, 5 * SECOND));
  CHECK(denrei_recv(to, 0, &message) == DENREI_TIMEOUT && denrei_error_message()[0] != '\0');
  CHECK(datagram_read0(sock, &endings, 0) <= 0 && datagram_source(sock) == -1);
  endings++;
}

static void of_thread(void *data) {
  (void)data;
  CHECK(datagram_set_destination(sock, 1) < 0 && datagram_write0(sock, "x", 1) < 0);
  use();
}

static void of_program(void) {
  use();
  CHECK(endings == 3);
  datagram_close(sock);
  denrei_node_free(from);
  denrei_node_free(to);
  puts("ok");
}

static void *thread(void *data) {
  CHECK(datagram_set_destination(sock, 1) == 0 && pthread_setspecific(key, data) == 0);
  use();
  return NULL;
}

int main(void) {
  char address[64];
  datagram_addrdb *addresses = datagram_addrdb_new();
  pthread_t started;
  denrei_config *config = denrei_config_new();
  OK(denrei_config_set(config, "drive", "thread"));
  OK(denrei_node_open("127.0.0.1:0", config, &from));
  OK(denrei_node_open("127.0.0.1:0", config, &to));
  denrei_config_free(config);
  OK(denrei_node_address(to, address, sizeof address));
  OK(denrei_connect(from, address, &peer));
  CHECK(datagram_addrdb_add(addresses, 1, "127.0.0.1", 9) == 0);
  sock = datagram(addresses, "127.0.0.1", 0, 2);
  CHECK(sock != NULL && pthread_key_create(&key, of_thread) == 0 && atexit(of_program) == 0);
  datagram_addrdb_free(addresses);
  CHECK(pthread_create(&started, NULL, thread, &key) == 0 && pthread_join(started, NULL) == 0);
  return 0;
}
