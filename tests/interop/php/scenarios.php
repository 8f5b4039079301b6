<?php
// SPDX-License-Identifier: Apache-2.0
// What the scenarios of both clients need: names, checks, ways to wait; and how they are run.

declare(strict_types=1);

const PATIENCE_S = 60;

error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
set_error_handler(function (int $level, string $text, string $file, int $line): bool {
    if (!(error_reporting() & $level)) {
        return false;  // Silenced by an @, or deprecated.
    }
    throw new ErrorException($text, 0, $level, $file, $line);
});

final class Failure extends Exception
{
}

abstract class Scenarios
{
    /** Its name; queues and exchanges that it makes begin with it. */
    public string $name = '';

    /** @param array<string, mixed> $told */
    public function __construct(protected array $told)
    {
    }

    public function begin(string $scenario): void
    {
        $this->name = 'php.' . $scenario . '.' . bin2hex(random_bytes(4));
    }

    public function end(): void
    {
    }

    protected function ask(string ...$words): void
    {
        say(['ask' => $words]);
        $this->answered();
    }

    protected function answered(): void
    {
        if (fgets(STDIN) === false) {
            throw new Failure('nobody answers');
        }
    }

    protected function equal(mixed $got, mixed $wanted): void
    {
        if ($got !== $wanted) {
            throw new Failure('got ' . var_export($got, true) . ' instead of ' . var_export($wanted, true));
        }
    }

    protected function check(bool $holds, mixed $about): void
    {
        if (!$holds) {
            throw new Failure(is_string($about) ? $about : var_export($about, true));
        }
    }

    /** Wait until it is so; what it was in the end. */
    protected function until(callable $holds): mixed
    {
        $deadline = microtime(true) + PATIENCE_S;
        while (!($found = $holds())) {
            $this->check(microtime(true) < $deadline, 'it did not come to pass');
            usleep(5000);
        }
        return $found;
    }

    /** What is thrown, which must be of this class. */
    protected function thrown(string $class, callable $act): Throwable
    {
        try {
            $act();
        } catch (Throwable $thrown) {
            if (!$thrown instanceof $class) {
                throw $thrown;
            }
            return $thrown;
        }
        throw new Failure("nothing is thrown, where a $class should be");
    }
}

/** @param array<string, mixed> $what */
function say(array $what): void
{
    echo json_encode($what, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
}

/** Run all public methods that the class itself declares, and say what became of each. */
function run(Scenarios $scenarios): void
{
    foreach ((new ReflectionClass($scenarios))->getMethods(ReflectionMethod::IS_PUBLIC) as $method) {
        if ($method->class !== $scenarios::class || in_array($method->name, ['begin', 'end'], true)) {
            continue;
        }
        $failure = null;
        $start = microtime(true);
        try {
            $scenarios->begin($method->name);
            $method->invoke($scenarios);
            $scenarios->end();
        } catch (Throwable $thrown) {
            $failure = (string) $thrown;
        }
        $ms = (int) (1000 * (microtime(true) - $start));
        say(['scenario' => $method->name, 'failure' => $failure, 'ms' => $ms]);
    }
}
