# SPDX-License-Identifier: Apache-2.0
# What we ask of Perl's AnyEvent::RabbitMQ, which sends the header of 0-9 and means 0-9-1: programs.py
# runs it, and hears what became of each scenario.
use strict;
use warnings;
use AnyEvent;
use AnyEvent::RabbitMQ;

$| = 1;
my ($connection, $channel, $name);
my $patience = AnyEvent->timer(after => $ENV{BROKER_PATIENCE_S}, cb => sub { die "nothing came\n" });

# The call with what it calls when it is done; what that was given.
sub done {
    my ($object, $method, %more) = @_;
    my $done = AnyEvent->condvar;
    $object->$method(
        on_success => sub { $done->send(@_) },
        on_failure => sub { $done->croak(text_of($_[0])) },
        %more,
    );
    return $done->recv;
}

sub text_of {
    my ($what) = @_;
    return ref $what && $what->can('method_frame') ? $what->method_frame->reply_text : "$what";
}

sub equal {
    my ($got, $wanted) = @_;
    die "got '$got' instead of '$wanted'\n" if $got ne $wanted;
}

# What is refused closes the channel.
sub refused {
    my ($text, @call) = @_;
    my $closed = AnyEvent->condvar;
    my $other = done($connection, 'open_channel', on_close => sub { $closed->send(text_of($_[0])) });
    die "nothing was refused: $text\n" if eval { done($other, @call); 1 };
    equal($closed->recv, $text);
}

sub connect_to_broker {
    my (%more) = @_;
    my $made = AnyEvent::RabbitMQ->new->load_xml_spec;
    done($made, 'connect', host => $ENV{BROKER_HOST}, port => $ENV{BROKER_PORT}, user => 'guest',
        pass => 'guest', vhost => '/', timeout => $ENV{BROKER_PATIENCE_S}, on_read_failure => sub { },
        on_return => sub { }, on_close => sub { }, %more);
    return $made;
}

sub open_channel { return done($connection, 'open_channel', on_close => sub { }) }

# Publish, and hear of the confirm, or of the return first.
sub publish {
    my (%what) = @_;
    my ($done, $heard) = (AnyEvent->condvar, '');
    $channel->publish(
        on_ack => sub { $done->send("${heard}ack") },
        on_nack => sub { $done->send("${heard}nack") },
        on_return => sub { $heard = 'returned, ' },
        %what,
    );
    return $done->recv;
}

my @scenarios = (
    confirms_returns_and_get => sub {
        done($channel, 'declare_queue', queue => $name, exclusive => 1,
            arguments => { 'x-max-length' => 1, 'x-overflow' => 'reject-publish' });
        done($channel, 'confirm');
        my %header = (content_type => 'text/plain', correlation_id => 'c', delivery_mode => 2,
            headers => { number => 7, text => 'value' });
        equal(publish(exchange => '', routing_key => $name, body => 'one', header => {%header}), 'ack');
        equal(publish(exchange => '', routing_key => $name, body => 'full'), 'nack');
        equal(publish(exchange => 'amq.direct', routing_key => $name, body => 'lost', mandatory => 1),
            'returned, ack');
        my $got = done($channel, 'get', queue => $name, no_ack => 1);
        my $header = $got->{header};
        equal(join(' ', $got->{body}->payload, $header->content_type, $header->correlation_id,
                $header->headers->{number}, $header->headers->{text}), 'one text/plain c 7 value');
    },

    prefetch_acks_and_rejects => sub {
        done($channel, 'declare_queue', queue => $name, exclusive => 1);
        done($channel, 'qos', prefetch_count => 1);
        my ($all, @got) = (AnyEvent->condvar);
        my $consumer = done($channel, 'consume', queue => $name, no_ack => 0, on_consume => sub {
            my ($delivery) = @_;
            my $frame = $delivery->{deliver}->method_frame;
            push @got, $delivery->{body}->payload . ($frame->redelivered ? '!' : '');
            my %tag = (delivery_tag => $frame->delivery_tag);
            @got == 1 ? $channel->reject(%tag, requeue => 1) : $channel->ack(%tag);
            $all->send if @got == 4;
        });
        $channel->publish(exchange => '', routing_key => $name, body => $_) for qw(a b c);
        $all->recv;
        equal("@got", 'a a! b c');
        done($channel, 'cancel', consumer_tag => $consumer->method_frame->consumer_tag);
    },

    exchanges_and_bindings => sub {
        done($channel, 'declare_queue', queue => $name, exclusive => 1);
        done($channel, 'declare_exchange', exchange => $name, type => 'topic', auto_delete => 1);
        done($channel, 'declare_exchange', exchange => "$name.from", type => 'fanout', auto_delete => 1);
        done($channel, 'bind_exchange', source => "$name.from", destination => $name, routing_key => '');
        done($channel, 'bind_queue', queue => $name, exchange => $name, routing_key => 'a.#');
        done($channel, 'confirm');
        publish(exchange => "$name.from", routing_key => $_, body => $_) for qw(b a.c);
        equal(done($channel, 'get', queue => $name)->{body}->payload, 'a.c');
        equal(done($channel, 'get', queue => $name)->{empty} ? 'empty' : 'more', 'empty');
        done($channel, 'unbind_exchange', source => "$name.from", destination => $name, routing_key => '');
        done($channel, 'unbind_queue', queue => $name, exchange => $name, routing_key => 'a.#');
    },

    transactions => sub {
        done($channel, 'declare_queue', queue => $name, exclusive => 1);
        done($channel, 'select_tx');
        $channel->publish(exchange => '', routing_key => $name, body => 'undone');
        done($channel, 'rollback_tx');
        $channel->publish(exchange => '', routing_key => $name, body => 'kept');
        done($channel, 'commit_tx');
        equal(done($channel, 'get', queue => $name)->{body}->payload, 'kept');
    },

    cancelled_by_the_broker => sub {
        done($channel, 'declare_queue', queue => $name, exclusive => 1);
        my $cancelled = AnyEvent->condvar;
        done($channel, 'consume', queue => $name, on_consume => sub { },
            on_cancel => sub { $cancelled->send });
        done(open_channel(), 'delete_queue', queue => $name);
        $cancelled->recv;
    },

    error_texts => sub {
        refused("NOT_FOUND - no queue '$name' in vhost '/'", 'declare_queue', queue => $name, passive => 1);
        refused("ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
            'declare_queue', queue => 'amq.mine');
    },

    what_is_durable_comes_back => sub {
        my $closed = AnyEvent->condvar;
        done($connection, 'close');
        $connection = connect_to_broker(on_close => sub { $closed->send(text_of($_[0])) });
        $channel = open_channel();
        done($channel, 'declare_queue', queue => $name, durable => 1);
        done($channel, 'confirm');
        publish(exchange => '', routing_key => $name, body => 'kept', header => { delivery_mode => 2 });
        print qq({"ask": ["restart"]}\n);
        my $text = $closed->recv;
        die "$text\n" if index($text, 'CONNECTION_FORCED') < 0;
        <STDIN>;
        $connection = connect_to_broker();
        $channel = open_channel();
        equal(done($channel, 'get', queue => $name)->{body}->payload, 'kept');
        done($channel, 'delete_queue', queue => $name);
    },
);

while (my ($scenario, $run) = splice @scenarios, 0, 2) {
    $name = "anyevent.$scenario";
    my $failure = eval {
        $connection = connect_to_broker();
        $channel = open_channel();
        $run->();
        done($connection, 'close');
        1;
    } ? 'null' : do { (my $text = "$@") =~ s/[^\w .,:'\/-]/ /g; qq("$text") };
    print qq({"scenario": "$scenario", "failure": $failure}\n);
}
