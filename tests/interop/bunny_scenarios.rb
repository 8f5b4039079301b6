# SPDX-License-Identifier: Apache-2.0
# What we ask of Ruby's bunny: programs.py runs it, and hears what became of each scenario.

require "json"
require "logger"
require "bunny"

PATIENCE_S = ENV["BROKER_PATIENCE_S"].to_i
$stdout.sync = true
Thread.report_on_exception = false

def connect(**options)
  Bunny.new(ENV["BROKER_URL"], logger: Logger.new(File::NULL), connection_name: "scenarios",
            session_error_handler: Object.new.tap { |it| def it.raise(*) = nil }, **options).start
end

def equal(got, wanted)
  raise "got #{got.inspect} instead of #{wanted.inspect}" unless got == wanted
end

def match(got, wanted)
  raise "got #{got.inspect}, nothing like #{wanted.inspect}" unless got.to_s.include?(wanted)
end

def refused(kind, text)
  yield
rescue kind => error
  match(error.message, text)
else
  raise "#{text}: nothing was raised"
end

# Deliveries of one consumer, to be taken one by one.
def inbox(queue, **options)
  found = Thread::Queue.new
  consumer = queue.subscribe(manual_ack: true, **options) { |*delivery| found << delivery }
  [found, consumer]
end

def other_channel(&work)
  $connection.with_channel(&work)
end

def take(found)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_S
  while found.empty?
    raise "nothing came" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
    sleep 0.005
  end
  found.pop
end

def body(found, channel)
  info, _, text = take(found)
  channel.ack(info.delivery_tag)
  text
end

module Scenarios
  module_function

  def properties_and_tables(channel, name)
    capabilities = $connection.server_capabilities
    %w[publisher_confirms consumer_cancel_notify basic.nack connection.blocked].each do |capability|
      equal(capabilities[capability], true)
    end
    queue = channel.queue(name, exclusive: true)
    headers = {
      "text" => "täxt", "number" => 7, "big" => 2**40, "negative" => -3, "ratio" => 0.5,
      "yes" => true, "no" => false, "none" => nil, "list" => [1, "two", { "deep" => [] }],
      "map" => { "in" => { "deeper" => 1 } }, "time" => Time.at(1_700_000_000),
    }
    channel.default_exchange.publish(
      "bödy", routing_key: name, headers: headers, content_type: "text/plain", persistent: true,
      content_encoding: "utf-8", priority: 4, correlation_id: "c", reply_to: "r", message_id: "m",
      expiration: "60000", timestamp: 1_700_000_000, type: "t", app_id: "a", user_id: "guest",
    )
    info, properties, text = queue.pop(manual_ack: true)
    equal(text.dup.force_encoding("utf-8"), "bödy")
    found = properties.headers
    found["text"].force_encoding("utf-8")
    equal(found, headers)
    equal(properties.to_h.except(:headers), {
      content_type: "text/plain", delivery_mode: 2, content_encoding: "utf-8", priority: 4,
      correlation_id: "c", reply_to: "r", message_id: "m", expiration: "60000",
      timestamp: Time.at(1_700_000_000), type: "t", app_id: "a", user_id: "guest",
    })
    equal([info.exchange, info.routing_key, info.redelivered?], ["", name, false])
    channel.ack(info.delivery_tag)
    equal(queue.pop, [nil, nil, nil])
  end

  def confirms(channel, name)
    queue = channel.queue(name, exclusive: true)
    channel.confirm_select
    1000.times { |number| queue.publish(number.to_s) }
    equal([channel.wait_for_confirms, channel.nacked_set.to_a, queue.message_count], [true, [], 1000])
    queue.publish("x" * 1_000_000)
    equal(channel.wait_for_confirms, true)
    queue.purge
    equal(queue.message_count, 0)
  end

  def nacked_when_full(channel, name)
    full = { "x-max-length" => 1, "x-overflow" => "reject-publish" }
    queue = channel.queue(name, exclusive: true, arguments: full)
    channel.confirm_select
    2.times { queue.publish("x") }
    equal([channel.wait_for_confirms, channel.nacked_set.to_a], [false, [2]])
  end

  def prefetch_acks_and_nacks(channel, name)
    queue = channel.queue(name, exclusive: true)
    channel.prefetch(2)
    found, consumer = inbox(queue)
    4.times { |number| queue.publish(number.to_s) }
    first, second = take(found), take(found)
    equal([first[2], second[2], queue.message_count], %w[0 1] + [2])
    channel.nack(second[0].delivery_tag, true, true)
    again = [take(found), take(found)]
    equal(again.map { |info, _, text| [text, info.redelivered?] }, [["0", true], ["1", true]])
    channel.reject(again[0][0].delivery_tag)
    channel.ack(again[1][0].delivery_tag)
    equal(2.times.map { body(found, channel) }, %w[2 3])
    consumer.cancel
    equal([queue.message_count, queue.consumer_count], [0, 0])
  end

  def returned(channel, name)
    back = Thread::Queue.new
    exchange = channel.fanout(name, auto_delete: true)
    exchange.on_return { |*what| back << what }
    exchange.publish("lost", routing_key: "k", mandatory: true, message_id: "m")
    info, properties, text = take(back)
    equal([info.reply_code, info.reply_text, info.exchange, info.routing_key], [312, "NO_ROUTE", name, "k"])
    equal([text, properties.message_id], %w[lost m])
    exchange.delete
  end

  def transactions(channel, name)
    queue = channel.queue(name, exclusive: true)
    channel.tx_select
    queue.publish("undone")
    channel.tx_rollback
    queue.publish("kept")
    equal(queue.message_count, 0)
    channel.tx_commit
    equal(queue.pop[2], "kept")
    refused(Bunny::PreconditionFailed, "cannot switch from tx to confirm mode") { channel.confirm_select }
  end

  def exchanges_and_bindings(channel, name)
    queue = channel.queue("", exclusive: true)
    match(queue.name, "amq.gen-")
    into = channel.topic(name, auto_delete: true)
    from = channel.headers("#{name}.from", auto_delete: true, arguments: { "alternate-exchange" => name })
    into.bind(from, arguments: { "x-match" => "all", "a" => 1 })
    queue.bind(into, routing_key: "*.x.#")
    from.publish("bound", routing_key: "a.x.b", headers: { "a" => 1 })
    from.publish("alternate", routing_key: "a.x", headers: { "a" => 2 })
    from.publish("neither", routing_key: "x")
    equal([queue.pop[2], queue.pop[2], queue.pop[2]], ["bound", "alternate", nil])
    into.unbind(from, arguments: { "x-match" => "all", "a" => 1 })
    queue.unbind(into, routing_key: "*.x.#")
    2.times { |number| refused(Bunny::NotFound, "no exchange") { other_channel { |other| other.exchange([name, "#{name}.from"][number], passive: true) } } }
  end

  def cancelled_by_the_broker(channel, name)
    queue = channel.queue(name, exclusive: true)
    heard = Thread::Queue.new
    queue.subscribe(on_cancellation: ->(cancel) { heard << cancel.consumer_tag }, consumer_tag: "mine") {}
    other_channel { |other| other.queue_delete(name) }
    equal(take(heard), "mine")
  end

  def dead_letters(channel, name)
    dead = channel.queue("#{name}.dead", exclusive: true)
    limits = { "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => dead.name, "x-message-ttl" => 1 }
    queue = channel.queue(name, exclusive: true, arguments: limits)
    found, = inbox(dead)
    queue.publish("old", headers: { "mine" => 1 })
    info, properties, text = take(found)
    death = properties.headers["x-death"][0]
    equal([text, info.routing_key, properties.headers["mine"]], ["old", dead.name, 1])
    equal(death.slice("queue", "reason", "count", "exchange", "routing-keys"), {
      "queue" => name, "reason" => "expired", "count" => 1, "exchange" => "", "routing-keys" => [name],
    })
    equal(death["time"].class, Time)
    equal(properties.headers["x-first-death-reason"], "expired")
  end

  def quorum_queue(channel, name)
    queue = channel.queue(name, durable: true, arguments: { "x-queue-type" => "quorum", "x-delivery-limit" => 1 })
    channel.confirm_select
    queue.publish("bad")
    equal(channel.wait_for_confirms, true)
    found, consumer = inbox(queue)
    2.times do |times|
      info, properties, = take(found)
      equal([properties.headers.to_h["x-delivery-count"].to_i, info.redelivered?], [times, times == 1])
      channel.nack(info.delivery_tag, false, true)
    end
    consumer.cancel
    equal(queue.message_count, 0)
    queue.delete
  end

  def stream(channel, name)
    queue = channel.queue(name, durable: true, arguments: { "x-queue-type" => "stream", "x-max-length-bytes" => 1_000_000 })
    channel.confirm_select
    5.times { |number| queue.publish(number.to_s) }
    channel.wait_for_confirms
    channel.prefetch(10)
    found, consumer = inbox(queue, arguments: { "x-stream-offset" => 2 })
    got = 3.times.map { take(found) }
    equal(got.map { |_, properties, text| [properties.headers["x-stream-offset"], text] }, [[2, "2"], [3, "3"], [4, "4"]])
    got.each { |info, *| channel.ack(info.delivery_tag) }
    consumer.cancel
  ensure
    other_channel { |other| other.queue_delete(name) }
  end

  def priorities(channel, name)
    queue = channel.queue(name, exclusive: true, arguments: { "x-max-priority" => 10 })
    [1, 9, 5].each { |priority| queue.publish(priority.to_s, priority: priority) }
    equal(3.times.map { queue.pop[2] }, %w[9 5 1])
  end

  def consumer_priority(channel, name)
    queue = channel.queue(name, exclusive: true, arguments: { "x-single-active-consumer" => true })
    first, consumer = inbox(queue)
    second, = inbox(queue, arguments: { "x-priority" => 5 })
    queue.publish("1")
    equal(body(first, channel), "1")
    consumer.cancel
    queue.publish("2")
    equal(body(second, channel), "2")
  end

  def direct_reply_to(channel, name)
    asked = channel.queue(name, exclusive: true)
    answers = Thread::Queue.new
    channel.basic_consume("amq.rabbitmq.reply-to", "", true) { |*answer| answers << answer }
    asked.publish("ping", reply_to: "amq.rabbitmq.reply-to", correlation_id: "7")
    _, properties, = asked.pop
    match(properties.reply_to, "amq.rabbitmq.reply-to.")
    other_channel do |other|
      other.default_exchange.publish("pong", routing_key: properties.reply_to, correlation_id: "7")
    end
    _, properties, text = take(answers)
    equal([text, properties.correlation_id], %w[pong 7])
  end

  def error_texts(channel, name)
        queue = channel.queue(name, exclusive: true)
    refused(Bunny::NotFound, "NOT_FOUND - no queue '#{name}.none' in vhost '/'") do
      other_channel { |other| other.queue("#{name}.none", passive: true) }
    end
    refused(Bunny::PreconditionFailed, "inequivalent arg 'auto_delete' for queue '#{name}' in vhost '/': received 'true' but current is 'false'") do
      other_channel { |other| other.queue(name, exclusive: true, auto_delete: true) }
    end
    refused(Bunny::AccessRefused, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'") do
      other_channel { |other| other.queue("amq.mine") }
    end
    other = connect
    refused(Bunny::ResourceLocked, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '#{name}'") do
      other.create_channel.queue(name, exclusive: true)
    end
    heard = Thread::Queue.new
    acking = other.create_channel
    acking.on_error { |_, close| heard << [close.reply_code, close.reply_text] }
    acking.ack(99)
    equal(take(heard), [406, "PRECONDITION_FAILED - unknown delivery tag 99"])
    other.close
    queue.delete
    refused(Bunny::AuthenticationFailureError, "Authentication with RabbitMQ failed") do
      connect(password: "wrong")
    end
  end

end

module Tls
  module_function

  # The authority verifies the broker, and the certificate logs in.
  def tls(*)
    other = connect(
      host: "localhost", port: ENV["BROKER_TLS_PORT"].to_i, tls: true, verify_peer: true,
      tls_ca_certificates: [ENV["BROKER_CA"]], tls_cert: ENV["BROKER_CERTIFICATE"],
      tls_key: ENV["BROKER_KEY"], auth_mechanism: "EXTERNAL",
    )
    other.with_channel { |channel| equal(channel.queue("", exclusive: true).message_count, 0) }
    other.close
  end
end

module Idle
  module_function

  # Nothing but heartbeats has kept it open.
  def heartbeats(*)
    3.times do |tries| # A machine that stands still for so long loses it all the same.
      rest = $beating_since + 2.5 - Process.clock_gettime(Process::CLOCK_MONOTONIC)
      sleep(rest) if rest.positive?
      break if $beating.open? || tries == 2
      begin_to_beat
    end
    equal([$beating.open?, $beating.heartbeat], [true, 1])
    $beating.close
    $connection.close
  end
end

module Restarted
  module_function

  def topology_comes_back(_, name)
    connection = connect(network_recovery_interval: 0.05)
    channel = connection.create_channel
    channel.prefetch(3)
    channel.confirm_select
    exchange = channel.topic(name, durable: false)
    queue = channel.queue("", exclusive: true)
    queue.bind(exchange, routing_key: "#")
    kept = channel.queue("#{name}.kept", durable: true)
    named = queue.name
    found, = inbox(queue)
    exchange.publish("before", routing_key: "k")
    equal(body(found, channel), "before")
    kept.publish("kept", persistent: true)
    equal(channel.wait_for_confirms, true)
    recovered = Thread::Queue.new
    connection.after_recovery_completed { recovered << true }
    puts JSON.generate({ ask: ["restart"] })
    $stdin.gets
    take(recovered)
    equal([queue.name == named, connection.open?, channel.open?], [false, true, true])
    exchange.publish("after", routing_key: "k")
    equal(body(found, channel), "after")
    equal(kept.pop[2], "kept")
    kept.delete
    connection.close
  end
end

def begin_to_beat
  $beating = connect(heartbeat: 1, automatically_recover: false)
  $beating_since = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

def run(scenario, where)
  name = "bunny.#{scenario}"
  channel = $connection.create_channel if $connection.open?
  where.send(scenario, channel, name)
  nil
rescue Exception => error
  "#{error.class}: #{error.message}\n#{error.backtrace.first(8).join("\n")}"
ensure
  channel.close if channel&.open?
end

$connection = connect
begin_to_beat
[Scenarios, Tls, Idle, Restarted].each do |where|
  where.singleton_methods(false).each { |scenario| puts JSON.generate({ scenario: scenario, failure: run(scenario, where) }) }
end
