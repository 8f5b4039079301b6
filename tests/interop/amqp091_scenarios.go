// SPDX-License-Identifier: Apache-2.0

// What we ask of Go's amqp091-go besides its own tests: programs.py runs it, and hears what became of
// each scenario.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	patience   = 20 * time.Second
	url        = os.Getenv("BROKER_URL")
	input      = bufio.NewReader(os.Stdin)
	connection *amqp.Connection
)

type scenario struct {
	name string
	run  func(channel *amqp.Channel, name string)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(got, wanted interface{}) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Sprintf("got %#v instead of %#v", got, wanted))
	}
}

func refused(err error, code int, text string) {
	if err == nil {
		panic("no error: " + text)
	}
	found, is := err.(*amqp.Error)
	if !is || found.Code != code || !strings.Contains(found.Reason, text) {
		panic(fmt.Sprintf("got %#v instead of %d %s", err, code, text))
	}
}

func declare(channel *amqp.Channel, name string, arguments amqp.Table) string {
	queue, err := channel.QueueDeclare(name, false, false, true, false, arguments)
	must(err)
	return queue.Name
}

func durable(channel *amqp.Channel, name string, arguments amqp.Table) {
	_, err := channel.QueueDeclare(name, true, false, false, false, arguments)
	must(err)
}

func publish(channel *amqp.Channel, exchange, key string, message amqp.Publishing) {
	must(channel.PublishWithContext(context.Background(), exchange, key, false, false, message))
}

func body(text string) amqp.Publishing { return amqp.Publishing{Body: []byte(text)} }

func consume(channel *amqp.Channel, queue string, arguments amqp.Table) <-chan amqp.Delivery {
	deliveries, err := channel.Consume(queue, "", false, false, false, false, arguments)
	must(err)
	return deliveries
}

func take(deliveries <-chan amqp.Delivery) amqp.Delivery {
	select {
	case delivery, open := <-deliveries:
		if !open {
			panic("cancelled")
		}
		return delivery
	case <-time.After(patience):
		panic("nothing came")
	}
}

func depth(channel *amqp.Channel, queue string) int {
	found, err := channel.QueueInspect(queue)
	must(err)
	return found.Messages
}

func propertiesAndTables(channel *amqp.Channel, name string) {
	declare(channel, name, nil)
	capabilities := connection.Properties["capabilities"].(amqp.Table)
	for _, capability := range []string{"publisher_confirms", "consumer_cancel_notify", "basic.nack", "connection.blocked"} {
		equal(capabilities[capability], true)
	}
	when := time.Unix(1_700_000_000, 0)
	sent := amqp.Publishing{
		Headers: amqp.Table{
			"bool": true, "octet": byte(200), "short": int16(-3), "int": int32(-70000), "long": int64(1) << 40,
			"float": float32(0.5), "double": 0.25, "decimal": amqp.Decimal{Scale: 2, Value: 314},
			"text": "täxt", "raw": []byte{0, 255}, "list": []interface{}{int32(1), "two", nil},
			"time": when, "map": amqp.Table{"in": amqp.Table{}}, "none": nil, "int8": int8(-5),
		},
		ContentType: "text/plain", ContentEncoding: "utf-8", DeliveryMode: amqp.Persistent, Priority: 4,
		CorrelationId: "c", ReplyTo: "r", Expiration: "60000", MessageId: "m", Timestamp: when,
		Type: "t", UserId: "guest", AppId: "a", Body: []byte("bödy"),
	}
	publish(channel, "", name, sent)
	got, found, err := channel.Get(name, false)
	must(err)
	equal(found, true)
	equal(got.Timestamp.Unix(), when.Unix())
	equal(got.Headers["time"].(time.Time).Unix(), when.Unix())
	got.Headers["time"] = when
	equal(got.Headers, sent.Headers)
	equal([]string{got.ContentType, got.ContentEncoding, got.CorrelationId, got.ReplyTo, got.Expiration, got.MessageId, got.Type, got.UserId, got.AppId, string(got.Body)},
		[]string{"text/plain", "utf-8", "c", "r", "60000", "m", "t", "guest", "a", "bödy"})
	equal([]uint8{got.DeliveryMode, got.Priority}, []uint8{2, 4})
	must(got.Ack(false))
	_, found, err = channel.Get(name, true)
	must(err)
	equal(found, false)
}

func confirmsAndReturns(channel *amqp.Channel, name string) {
	declare(channel, name, amqp.Table{"x-max-length": 1000, "x-overflow": "reject-publish"})
	must(channel.Confirm(false))
	returns := channel.NotifyReturn(make(chan amqp.Return, 1))
	// Not by deferred confirmations: 1.5.0 notes one after it has sent, and waits for ever if the answer is faster.
	confirms := channel.NotifyPublish(make(chan amqp.Confirmation, 1000))
	send := func(exchange string, mandatory bool, message amqp.Publishing) {
		must(channel.PublishWithContext(context.Background(), exchange, name, mandatory, false, message))
	}
	for number := 0; number < 1000; number++ {
		send("", false, body(fmt.Sprint(number)))
	}
	for number := 0; number < 1000; number++ {
		equal((<-confirms).Ack, true)
	}
	equal(depth(channel, name), 1000)
	send("", false, body("full"))
	equal((<-confirms).Ack, false)
	send("amq.direct", true, body("lost"))
	equal((<-confirms).Ack, true)
	back := <-returns
	equal([]interface{}{back.ReplyCode, back.ReplyText, back.Exchange, back.RoutingKey, string(back.Body)},
		[]interface{}{uint16(312), "NO_ROUTE", "amq.direct", name, "lost"})
	purged, err := channel.QueuePurge(name, false)
	must(err)
	equal(purged, 1000)
	large := bytes.Repeat([]byte("0123456789"), 100_000)
	send("", false, amqp.Publishing{Body: large})
	equal((<-confirms).Ack, true)
	got, _, err := channel.Get(name, true)
	must(err)
	equal(bytes.Equal(got.Body, large), true)
}

func prefetchAcksAndNacks(channel *amqp.Channel, name string) {
	declare(channel, name, nil)
	must(channel.Qos(2, 0, true))
	deliveries := consume(channel, name, nil)
	for number := 0; number < 4; number++ {
		publish(channel, "", name, body(fmt.Sprint(number)))
	}
	first, second := take(deliveries), take(deliveries)
	equal([]interface{}{string(first.Body), string(second.Body), depth(channel, name)}, []interface{}{"0", "1", 2})
	must(second.Nack(true, true))
	first, second = take(deliveries), take(deliveries)
	equal([]interface{}{string(first.Body), first.Redelivered, string(second.Body), second.Redelivered}, []interface{}{"0", true, "1", true})
	must(first.Reject(false))
	must(second.Ack(false))
	for _, wanted := range []string{"2", "3"} {
		delivery := take(deliveries)
		equal(string(delivery.Body), wanted)
		must(delivery.Ack(false))
	}
	equal(depth(channel, name), 0)
}

func transactions(channel *amqp.Channel, name string) {
	declare(channel, name, nil)
	must(channel.Tx())
	publish(channel, "", name, body("undone"))
	must(channel.TxRollback())
	publish(channel, "", name, body("kept"))
	must(channel.TxCommit())
	got, _, err := channel.Get(name, true)
	must(err)
	equal(string(got.Body), "kept")
	equal(depth(channel, name), 0)
}

func cancelledByTheBroker(channel *amqp.Channel, name string) {
	declare(channel, name, nil)
	cancels := channel.NotifyCancel(make(chan string, 1))
	deliveries, err := channel.Consume(name, "mine", true, false, false, false, nil)
	must(err)
	_, err = channel.QueueDelete(name, false, false, false)
	must(err)
	equal(<-cancels, "mine")
	_, open := <-deliveries
	equal(open, false)
}

func deadLettersDelaysAndPriorities(channel *amqp.Channel, name string) {
	dead := declare(channel, name+".dead", nil)
	declare(channel, name, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, "x-message-ttl": int64(1)})
	publish(channel, "", name, body("old"))
	got := take(consume(channel, dead, nil))
	death := got.Headers["x-death"].([]interface{})[0].(amqp.Table)
	equal([]interface{}{death["queue"], death["reason"], death["count"], death["exchange"]}, []interface{}{name, "expired", int64(1), ""})
	equal(death["routing-keys"], []interface{}{name})

	first := declare(channel, name+".first", amqp.Table{"x-max-priority": 10})
	for _, priority := range []uint8{1, 9, 5} {
		publish(channel, "", first, amqp.Publishing{Priority: priority, Body: []byte{priority}})
	}
	deliveries := consume(channel, first, nil)
	order := append(append(take(deliveries).Body, take(deliveries).Body...), take(deliveries).Body...)
	equal(order, []byte{9, 5, 1})
}

func quorumQueuesAndStreams(channel *amqp.Channel, name string) {
	durable(channel, name, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 1})
	must(channel.Confirm(false))
	must(channel.Qos(10, 0, false))
	publish(channel, "", name, body("bad"))
	deliveries := consume(channel, name, nil)
	for times := 0; times < 2; times++ {
		delivery := take(deliveries)
		equal(delivery.Redelivered, times == 1)
		if times == 1 {
			equal(delivery.Headers["x-delivery-count"], int64(1))
		}
		must(delivery.Nack(false, true))
	}
	equal(depth(channel, name), 0)
	_, err := channel.QueueDelete(name, false, false, false)
	must(err)

	stream := name + ".stream"
	durable(channel, stream, amqp.Table{"x-queue-type": "stream", "x-max-age": "1D"})
	var last *amqp.DeferredConfirmation
	for number := 0; number < 5; number++ {
		last, err = channel.PublishWithDeferredConfirmWithContext(context.Background(), "", stream, false, false, body(fmt.Sprint(number)))
		must(err)
	}
	equal(last.Wait(), true)
	records := consume(channel, stream, amqp.Table{"x-stream-offset": 3})
	for _, wanted := range []int64{3, 4} {
		record := take(records)
		equal([]interface{}{record.Headers["x-stream-offset"], string(record.Body)}, []interface{}{wanted, fmt.Sprint(wanted)})
		must(record.Ack(false))
	}
	_, err = channel.QueueDelete(stream, false, false, false)
	must(err)
}

func directReplyTo(channel *amqp.Channel, name string) {
	declare(channel, name, nil)
	answers, err := channel.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	must(err)
	publish(channel, "", name, amqp.Publishing{ReplyTo: "amq.rabbitmq.reply-to", CorrelationId: "7", Body: []byte("ping")})
	asked := take(consume(channel, name, nil))
	other, err := connection.Channel()
	must(err)
	publish(other, "", asked.ReplyTo, amqp.Publishing{CorrelationId: asked.CorrelationId, Body: []byte("pong")})
	answer := take(answers)
	equal([]string{answer.CorrelationId, string(answer.Body)}, []string{"7", "pong"})
	must(other.Close())
}

func errorTexts(channel *amqp.Channel, name string) {
	declare(channel, name, nil)
	on := func(work func(*amqp.Channel) error) error {
		other, err := connection.Channel()
		must(err)
		closed := other.NotifyClose(make(chan *amqp.Error, 1))
		if err = work(other); err == nil { // What has no answer is heard of later.
			return <-closed
		}
		return err
	}
	refused(on(func(other *amqp.Channel) error {
		_, err := other.QueueDeclarePassive(name+".none", false, false, false, false, nil)
		return err
	}), 404, "NOT_FOUND - no queue '"+name+".none' in vhost '/'")
	refused(on(func(other *amqp.Channel) error {
		_, err := other.QueueDeclare(name, false, false, true, false, amqp.Table{"x-max-length": 5})
		return err
	}), 406, "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '"+name+"' in vhost '/': received the value '5' of type 'signedint' but current is none")
	refused(on(func(other *amqp.Channel) error {
		return other.ExchangeDeclare(name, "no-such-type", false, true, false, false, nil)
	}), 503, "COMMAND_INVALID - unknown exchange type 'no-such-type'")
	another, err := amqp.Dial(url)
	must(err)
	connection = another // That was the end of the connection.
	refused(on(func(other *amqp.Channel) error { return other.Ack(99, false) }), 406, "PRECONDITION_FAILED - unknown delivery tag 99")
	refused(on(func(other *amqp.Channel) error {
		return other.PublishWithContext(context.Background(), name+".none", "", false, false, body("x"))
	}), 404, "NOT_FOUND - no exchange '"+name+".none' in vhost '/'")
	_, err = amqp.Dial(strings.Replace(url, "guest:guest", "guest:wrong", 1))
	equal(err, amqp.ErrCredentials)
	_, err = amqp.Dial(strings.Replace(url, "/%2F", "/none", 1))
	equal(err, amqp.ErrVhost)
}

// The authority verifies the broker, and the certificate logs in.
func tlsAndCertificates(_ *amqp.Channel, name string) {
	authority, err := os.ReadFile(os.Getenv("BROKER_CA"))
	must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	certificate, err := tls.LoadX509KeyPair(os.Getenv("BROKER_CERTIFICATE"), os.Getenv("BROKER_KEY"))
	must(err)
	config := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}}
	other, err := amqp.DialTLS_ExternalAuth("amqps://localhost:"+os.Getenv("BROKER_TLS_PORT")+"/%2F", config)
	must(err)
	channel, err := other.Channel()
	must(err)
	declare(channel, name, nil)
	publish(channel, "", name, body(strings.Repeat("x", 300_000)))
	equal(len(take(consume(channel, name, nil)).Body), 300_000)
	must(other.Close())
}

// Nothing but heartbeats keeps it open.
func heartbeats(*amqp.Channel, string) {
	for tries := 3; ; tries-- { // A machine that stands still for so long loses it all the same.
		idle, err := amqp.DialConfig(url, amqp.Config{Heartbeat: time.Second})
		must(err)
		select {
		case closed := <-idle.NotifyClose(make(chan *amqp.Error, 1)):
			if tries == 1 {
				panic(closed)
			}
		case <-time.After(2500 * time.Millisecond):
			must(idle.Close())
			return
		}
	}
}

func whatIsDurableComesBack(channel *amqp.Channel, name string) {
	durable(channel, name, nil)
	must(channel.Confirm(false))
	kept, err := channel.PublishWithDeferredConfirmWithContext(context.Background(), "", name, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("kept")})
	must(err)
	equal(kept.Wait(), true)
	closed := connection.NotifyClose(make(chan *amqp.Error, 1))
	fmt.Println(`{"ask": ["restart"]}`)
	refused(<-closed, 320, "CONNECTION_FORCED")
	_, err = input.ReadString('\n')
	must(err)
	connection, err = amqp.Dial(url)
	must(err)
	channel, err = connection.Channel()
	must(err)
	got, found, err := channel.Get(name, true)
	must(err)
	equal([]interface{}{found, string(got.Body)}, []interface{}{true, "kept"})
	_, err = channel.QueueDelete(name, false, false, false)
	must(err)
}

func run(one scenario) (failure interface{}) {
	defer func() {
		if what := recover(); what != nil {
			failure = fmt.Sprint(what)
		}
	}()
	channel, err := connection.Channel()
	must(err)
	one.run(channel, "amqp091."+one.name)
	if !channel.IsClosed() {
		must(channel.Close())
	}
	return nil
}

func main() {
	seconds, err := strconv.Atoi(os.Getenv("BROKER_PATIENCE_S"))
	must(err)
	patience = time.Duration(seconds) * time.Second
	connection, err = amqp.Dial(url)
	must(err)
	scenarios := []scenario{
		{"properties_and_tables", propertiesAndTables},
		{"confirms_and_returns", confirmsAndReturns},
		{"prefetch_acks_and_nacks", prefetchAcksAndNacks},
		{"transactions", transactions},
		{"cancelled_by_the_broker", cancelledByTheBroker},
		{"dead_letters_delays_and_priorities", deadLettersDelaysAndPriorities},
		{"quorum_queues_and_streams", quorumQueuesAndStreams},
		{"direct_reply_to", directReplyTo},
		{"error_texts", errorTexts},
		{"heartbeats", heartbeats},
		{"tls_and_certificates", tlsAndCertificates},
		{"what_is_durable_comes_back", whatIsDurableComesBack},
	}
	for _, one := range scenarios {
		said, err := json.Marshal(map[string]interface{}{"scenario": one.name, "failure": run(one)})
		must(err)
		fmt.Println(string(said))
	}
	must(connection.Close())
}
