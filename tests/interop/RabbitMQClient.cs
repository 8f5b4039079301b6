// SPDX-License-Identifier: Apache-2.0
// What we ask of RabbitMQ's client for .NET as Mono ships it, which speaks AMQP 0-8 and 0-9: programs.py
// runs it, and hears what became of each scenario.

using System;
using System.Collections;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Text;
using System.Threading;
using RabbitMQ.Client;
using RabbitMQ.Client.Events;
using RabbitMQ.Client.Exceptions;
using RabbitMQ.Client.MessagePatterns;

class Scenarios {
  static readonly int PatienceMs = 1000 * int.Parse(Environment.GetEnvironmentVariable("BROKER_PATIENCE_S"));
  IConnection connection;
  IModel model;
  string name;
  IProtocol protocol;

  static void Equal(object got, object wanted) {
    if (!Equals(got, wanted)) throw new Exception("got " + got + " instead of " + wanted);
  }

  static string Text(object octets) { return Encoding.UTF8.GetString((byte[])octets); }
  static byte[] Octets(string text) { return Encoding.UTF8.GetBytes(text); }

  IConnection Connect(string password = "guest", string vhost = "/", ushort heartbeat = 0) {
    var factory = new ConnectionFactory {
      Protocol = protocol, Password = password, VirtualHost = vhost, RequestedHeartbeat = heartbeat,
      HostName = Environment.GetEnvironmentVariable("BROKER_HOST"),
      Port = int.Parse(Environment.GetEnvironmentVariable("BROKER_PORT")),
    };
    return factory.CreateConnection();
  }

  string Declare(string queue, IDictionary arguments = null, bool durable = false) {
    return model.QueueDeclare(queue, false, durable, !durable, false, false, arguments);
  }

  void Publish(string exchange, string key, string body, IBasicProperties properties = null) {
    model.BasicPublish(exchange, key, properties, Octets(body));
  }

  BasicDeliverEventArgs Take(QueueingBasicConsumer consumer) {
    object found;
    if (!consumer.Queue.Dequeue(PatienceMs, out found)) throw new Exception("nothing came");
    return (BasicDeliverEventArgs)found;
  }

  static void Refused(int code, string text, Action work) {
    try {
      work();
    } catch (OperationInterruptedException error) {
      Equal((int)error.ShutdownReason.ReplyCode, code);
      if (!error.ShutdownReason.ReplyText.Contains(text)) throw new Exception(error.ShutdownReason.ReplyText);
      return;
    }
    throw new Exception("nothing was thrown: " + text);
  }

  public void PropertiesAndTables() {
    Declare(name);
    var sent = model.CreateBasicProperties();
    sent.Headers = new Hashtable {
      { "text", Octets("täxt") }, { "number", -7 }, { "time", new AmqpTimestamp(1700000000) },
      { "inner", new Hashtable { { "in", 1 } } },
    };
    sent.ContentType = "text/plain";
    sent.ContentEncoding = "utf-8";
    sent.DeliveryMode = 2;
    sent.Priority = 4;
    sent.CorrelationId = "c";
    sent.ReplyToAddress = new PublicationAddress("direct", "amq.direct", "k");
    sent.Expiration = "60000";
    sent.MessageId = "m";
    sent.Timestamp = new AmqpTimestamp(1700000000);
    sent.Type = "t";
    sent.UserId = "guest";
    sent.AppId = "a";
    sent.ClusterId = "l";
    Publish("", name, "bödy", sent);
    var got = model.BasicGet(name, false);
    var p = got.BasicProperties;
    Equal(Text(got.Body), "bödy");
    Equal(Text(p.Headers["text"]), "täxt");
    Equal(p.Headers["number"], -7);
    Equal(((AmqpTimestamp)p.Headers["time"]).UnixTime, 1700000000L);
    Equal(((IDictionary)p.Headers["inner"])["in"], 1);
    Equal(string.Join(" ", p.ContentType, p.ContentEncoding, p.DeliveryMode, p.Priority, p.CorrelationId, p.ReplyTo,
                      p.Expiration, p.MessageId, p.Timestamp.UnixTime, p.Type, p.UserId, p.AppId, p.ClusterId),
          "text/plain utf-8 2 4 c direct://amq.direct/k 60000 m 1700000000 t guest a l");
    Equal(string.Join(" ", got.Exchange, got.RoutingKey, got.Redelivered, got.MessageCount), " " + name + " False 0");
    model.BasicAck(got.DeliveryTag, false);
    Equal(model.BasicGet(name, true), null);
  }

  public void PrefetchAcksAndRejects() {
    Declare(name);
    model.BasicQos(0, 2, false);
    for (int number = 0; number < 4; number++) Publish("", name, number.ToString());
    var consumer = new QueueingBasicConsumer(model);
    string tag = model.BasicConsume(name, null, consumer);
    var first = Take(consumer);
    var second = Take(consumer);
    Equal(Text(first.Body) + Text(second.Body), "01");
    model.BasicReject(second.DeliveryTag, true);  // These versions give it to another channel.
    using (var other = connection.CreateModel()) {
      var rejected = other.BasicGet(name, true);
      Equal(Text(rejected.Body) + rejected.Redelivered, "1True");
    }
    Equal(Text(Take(consumer).Body), "2");
    model.BasicAck(first.DeliveryTag, true);
    var last = Take(consumer);
    Equal(Text(last.Body) + last.Redelivered, "3False");
    model.BasicCancel(tag);
    model.BasicAck(last.DeliveryTag - 1, false);
    model.BasicRecover(true);
    var again = model.BasicGet(name, true);
    Equal(Text(again.Body) + again.Redelivered, "3True");
  }

  public void Transactions() {
    Declare(name);
    model.TxSelect();
    Publish("", name, "undone");
    model.TxRollback();
    Publish("", name, "kept");
    Equal(model.BasicGet(name, true), null);
    model.TxCommit();
    Equal(Text(model.BasicGet(name, true).Body), "kept");
  }

  public void Returned() {
    var heard = new ManualResetEvent(false);
    BasicReturnEventArgs back = null;
    model.BasicReturn += (_, what) => { back = what; heard.Set(); };
    model.BasicPublish("amq.direct", name, true, false, null, Octets("lost"));
    Equal(heard.WaitOne(PatienceMs), true);
    Equal(string.Join(" ", back.ReplyCode, back.ReplyText, back.Exchange, back.RoutingKey, Text(back.Body)),
          "312 NO_ROUTE amq.direct " + name + " lost");
    heard.Reset();
    Declare(name);
    model.BasicPublish("", name, false, true, null, Octets("at once"));
    Equal(heard.WaitOne(PatienceMs), true);
    Equal(back.ReplyCode, (ushort)313);
  }

  public void ExchangesAndBindings() {
    string queue = Declare("");
    model.ExchangeDeclare(name, "topic", false, false, true, false, false, null);
    model.QueueBind(queue, name, "*.x.#", false, null);
    model.ExchangeDeclare(name + ".headers", "headers", false, false, true, false, false, null);
    model.QueueBind(queue, name + ".headers", "", false, new Hashtable { { "x-match", Octets("all") }, { "a", 1 } });
    Publish(name, "a.x.b", "by key");
    Publish(name, "x", "not");
    var properties = model.CreateBasicProperties();
    properties.Headers = new Hashtable { { "a", 1 }, { "b", 2 } };
    Publish(name + ".headers", "", "by header", properties);
    Equal(Text(model.BasicGet(queue, true).Body) + ", " + Text(model.BasicGet(queue, true).Body), "by key, by header");
    Equal(model.BasicGet(queue, true), null);
    Equal(model.QueuePurge(queue, false), 0u);
    Equal(model.QueueDelete(queue, false, false, false), 0u);
  }

  public void CallsAndAnswers() {
    Declare(name);
    var server = new Answering(new Subscription(model, name));
    var thread = new Thread(server.MainLoop);
    thread.Start();
    using (var asking = connection.CreateModel()) {
      var client = new SimpleRpcClient(asking, name) { TimeoutMilliseconds = PatienceMs };
      Equal(Text(client.Call(Octets("ping"))), "ping, pong");
      Equal(Text(client.Call(Octets("again"))), "again, pong");
    }
    server.Close();
    thread.Join(PatienceMs);
  }

  class Answering : SimpleRpcServer {
    public Answering(Subscription subscription) : base(subscription) {}
    public override byte[] HandleSimpleCall(bool redelivered, IBasicProperties asked, byte[] body,
                                            out IBasicProperties answer) {
      answer = null;
      return Octets(Text(body) + ", pong");
    }
  }

  public void LimitsAndDeadLetters() {
    Declare(name + ".dead");
    Declare(name, new Hashtable {
      { "x-max-length", 1 }, { "x-dead-letter-exchange", Octets("") },
      { "x-dead-letter-routing-key", Octets(name + ".dead") },
    });
    Publish("", name, "old");
    Publish("", name, "new");
    Equal(Text(model.BasicGet(name, true).Body), "new");
    var consumer = new QueueingBasicConsumer(model);
    model.BasicConsume(name + ".dead", true, null, consumer);
    var letter = Take(consumer);
    Equal(Text(letter.Body) + ", " + Text(letter.BasicProperties.Headers["x-first-death-reason"]), "old, maxlen");
  }

  public void LargeMessages() {
    Declare(name);
    var body = new byte[1000000];
    new Random(1).NextBytes(body);
    model.BasicPublish("", name, null, body);
    Equal(Convert.ToBase64String(model.BasicGet(name, true).Body), Convert.ToBase64String(body));
  }

  public void Errors() {
    Refused(404, "NOT_FOUND - no queue '" + name + "' in vhost '/'", () => {
      using (var other = connection.CreateModel()) other.QueueDeclare(name, true, false, false, false, false, null);
    });
    Refused(404, "NOT_FOUND - no exchange '" + name + "' in vhost '/'", () => {
      using (var other = connection.CreateModel()) other.ExchangeDeclare(name, "direct", true, false, false, false, false, null);
    });
    Declare(name);
    Refused(405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '" + name + "'", () => {
      using (var one = Connect()) using (var other = one.CreateModel()) other.QueuePurge(name, false);
    });
    foreach (var wrong in new Func<IConnection>[] { () => Connect("wrong"), () => Connect(vhost: "none") }) {
      try {
        wrong();
      } catch (BrokerUnreachableException) {
        continue;
      } catch (OperationInterruptedException) {
        continue;
      }
      throw new Exception("it got in");
    }
  }

  // Nothing but heartbeats keeps it open.
  public void Heartbeats() {
    for (var tries = 3; ; tries--) {  // A machine that stands still for so long loses it all the same.
      var idle = Connect(heartbeat: 1);
      var lost = new ManualResetEvent(false);
      idle.ConnectionShutdown += (_, why) => lost.Set();
      Equal((int)idle.Heartbeat, 1);
      if (!lost.WaitOne(2500)) {
        idle.Close();
        return;
      }
      Equal(tries > 1, true);
    }
  }

  public void WhatIsDurableComesBack() {
    var properties = model.CreateBasicProperties();
    properties.SetPersistent(true);
    Declare(name, null, true);
    model.TxSelect();
    Publish("", name, "kept", properties);
    model.TxCommit();
    var lost = new ManualResetEvent(false);
    ShutdownEventArgs why = null;
    connection.ConnectionShutdown += (_, reason) => { why = reason; lost.Set(); };
    Console.WriteLine("{\"ask\": [\"restart\"]}");
    Equal(lost.WaitOne(PatienceMs), true);
    Equal((int)why.ReplyCode, 320);
    Console.In.ReadLine();
    connection = Connect();
    model = connection.CreateModel();
    Equal(Text(model.BasicGet(name, true).Body), "kept");
    model.QueueDelete(name, false, false, false);
  }

  string Run(MethodInfo scenario) {
    try {
      connection = Connect();
      model = connection.CreateModel();
      scenario.Invoke(this, null);
      model.Close();
      connection.Close();
      return "null";
    } catch (Exception error) {
      var text = (error.InnerException ?? error).ToString();
      return "\"" + text.Replace("\\", "/").Replace("\"", "'").Replace("\n", "\\n").Replace("\r", "").Replace("\t", " ") + "\"";
    }
  }

  static void Main() {
    var output = new StreamWriter(Console.OpenStandardOutput(), new UTF8Encoding(false)) { AutoFlush = true };
    Console.SetOut(output);
    foreach (var version in new[] { "0-8", "0-9" }) {
      var protocol = version == "0-8" ? Protocols.AMQP_0_8 : Protocols.AMQP_0_9;
      foreach (var scenario in typeof(Scenarios).GetMethods(BindingFlags.Public | BindingFlags.Instance | BindingFlags.DeclaredOnly)) {
        var asking = new Scenarios { protocol = protocol, name = "mono." + version + "." + scenario.Name };
        var failure = asking.Run(scenario);
        Console.WriteLine("{\"scenario\": \"" + version + " " + scenario.Name + "\", \"failure\": " + failure + "}");
      }
    }
    Environment.Exit(0);
  }
}
