# SPDX-License-Identifier: Apache-2.0
# A client made of Net::AMQP's codec: opens, declares, publishes, gets and consumes, and prints what
# it heard as lines. Arguments: the XML of the protocol, host, port, queue.
use strict;
use warnings;
use IO::Socket::INET;
use Net::AMQP;

my ($xml, $host, $port, $queue) = @ARGV;
Net::AMQP::Protocol->load_xml_spec($xml);
my $socket = IO::Socket::INET->new(PeerHost => $host, PeerPort => $port, Timeout => 10)
    or die "no connection: $!";
binmode $socket;
my ($input, @frames) = ('');

sub method {
    my ($channel, $class, %fields) = @_;
    my $frame = Net::AMQP::Frame::Method->new(
        channel => $channel, method_frame => "Net::AMQP::Protocol::$class"->new(%fields));
    print {$socket} $frame->to_raw_frame();
}

sub frame {
    until (@frames) {
        my $read = sysread $socket, $input, 65536, length $input;
        die "the broker hung up" unless $read;
        push @frames, Net::AMQP->parse_raw_frames(\$input);
    }
    return shift @frames;
}

sub expect {
    my ($class) = @_;
    my $frame = frame();
    my $method = $frame->can('method_frame') ? $frame->method_frame : die "no method: " . ref $frame;
    die "not $class: " . ref $method unless $method->isa("Net::AMQP::Protocol::$class");
    return $method;
}

sub content {
    my $header = frame();
    my $size = $header->body_size;
    my $body = '';
    $body .= frame()->payload while length $body < $size;
    return ($header->header_frame, $body);
}

sub publish {
    my ($body, %properties) = @_;
    method(1, 'Basic::Publish', ticket => 1, exchange => '', routing_key => $queue);
    my $header = Net::AMQP::Frame::Header->new(
        channel => 1, weight => 0, body_size => length $body,
        header_frame => Net::AMQP::Protocol::Basic::ContentHeader->new(%properties));
    my $frame = Net::AMQP::Frame::Body->new(channel => 1, payload => $body);
    print {$socket} $header->to_raw_frame(), $frame->to_raw_frame();
}

$socket->autoflush(0);
print {$socket} Net::AMQP::Protocol->header;
$socket->flush;
my $start = expect('Connection::Start');
print "start ", $start->version_major, " ", $start->version_minor, "\n";
print "product ", $start->server_properties->{product}, "\n";
method(0, 'Connection::StartOk',
    client_properties => { product => 'Net::AMQP' }, mechanism => 'AMQPLAIN', locale => 'en_US',
    response => { LOGIN => 'guest', PASSWORD => 'guest' });
$socket->flush;
my $tune = expect('Connection::Tune');
method(0, 'Connection::TuneOk',
    channel_max => $tune->channel_max, frame_max => $tune->frame_max, heartbeat => 0);
method(0, 'Connection::Open', virtual_host => '/', capabilities => '', insist => 1);
$socket->flush;
expect('Connection::OpenOk');
method(1, 'Channel::Open');
$socket->flush;
expect('Channel::OpenOk');
method(1, 'Access::Request', realm => '/data', passive => 1, active => 1, write => 1, read => 1);
$socket->flush;
my $ticket = expect('Access::RequestOk')->ticket;
print "ticket ", ($ticket > 1 ? "granted" : "none"), "\n";
method(1, 'Queue::Declare', ticket => $ticket, queue => $queue, auto_delete => 1);
$socket->flush;
print "declared ", expect('Queue::DeclareOk')->queue, "\n";
publish('first', content_type => 'text/plain', headers => { key => 'value' }, message_id => 'm1');
publish('second');
method(1, 'Basic::Get', ticket => $ticket, queue => $queue, no_ack => 1);
$socket->flush;
expect('Basic::GetOk');
my ($properties, $body) = content();
print "got $body ", $properties->content_type, " ", $properties->headers->{key}, " ",
    $properties->message_id, "\n";
method(1, 'Basic::Consume', ticket => $ticket, queue => $queue, consumer_tag => 'perl');
$socket->flush;
expect('Basic::ConsumeOk');
my $deliver = expect('Basic::Deliver');
($properties, $body) = content();
print "delivered $body ", $deliver->consumer_tag, " ", $deliver->delivery_tag, "\n";
method(1, 'Basic::Ack', delivery_tag => $deliver->delivery_tag, multiple => 0);
method(1, 'Channel::Close', reply_code => 200, reply_text => 'bye', class_id => 0, method_id => 0);
$socket->flush;
expect('Channel::CloseOk');
method(0, 'Connection::Close', reply_code => 200, reply_text => '', class_id => 0, method_id => 0);
$socket->flush;
expect('Connection::CloseOk');
print "closed\n";
