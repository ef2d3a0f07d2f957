<?php
/**
 * Runs before every script (auto_prepend_file): tells WordPress where it lives, and logs what the request did.
 *
 * The event logs have the columns of the board application's (README): requests.tsv, statements.tsv,
 * checkouts.tsv; times in microseconds since the epoch. Lines of a request are written at its end, in one piece.
 */

define('ABSPATH', getenv('BLOG_ROOT') . '/');

final class RequestLog
{
    public static string $id = '';
    /** Appended to every statement; empty when nothing is monitored. */
    public static string $tag = '';
    private static string $folder = '';
    private static int $began_us = 0;
    /** @var list<string> */
    private static array $statements = [];
    /** @var array<int, int> MariaDB thread id => when the connection was asked for */
    private static array $connections = [];

    public static function now_us(): int
    {
        return (int) (microtime(true) * 1e6);
    }

    public static function begin(): void
    {
        self::$folder = (string) getenv('BLOG_EVENTS');
        self::$began_us = self::now_us();
        $id = $_SERVER['HTTP_X_REQUEST_ID'] ?? '';
        if (self::$folder === '' || preg_match('/^[0-9a-f-]{36}$/', $id) !== 1) {
            return;
        }
        self::$id = $id;
        self::$tag = "/*ID=$id*/";
        // The shutdown functions of WordPress are registered later and may ask the database: a function that
        // is registered during the shutdown runs after all of them.
        register_shutdown_function(static fn () => register_shutdown_function([self::class, 'end']));
    }

    public static function connected(int $thread, int $asked_us): void
    {
        self::$connections[$thread] = $asked_us;
    }

    public static function statement(int $sent_us, int $received_us, int $thread): void
    {
        if (self::$id !== '') {
            $ordinal = count(self::$statements);
            self::$statements[] = self::$id . "\t$ordinal\t$sent_us\t$received_us\t$thread\ttext\n";
        }
    }

    public static function end(): void
    {
        $id = self::$id;
        $ended_us = self::now_us();
        $status = http_response_code();
        $path = strtok($_SERVER['REQUEST_URI'] ?? '', '?');
        $row = "$id\t" . self::$began_us . "\t$ended_us\t$status\t" . getmypid() . "\t$path\n";
        self::append('requests.tsv', $row);
        self::append('statements.tsv', implode('', self::$statements));
        $held = '';
        foreach (self::$connections as $thread => $asked_us) {
            $held .= "$id\t$thread\t$asked_us\t$ended_us\n";
        }
        self::append('checkouts.tsv', $held);
    }

    private static function append(string $name, string $rows): void
    {
        if ($rows !== '') {
            file_put_contents(self::$folder . '/' . $name, $rows, FILE_APPEND | LOCK_EX);
        }
    }
}

RequestLog::begin();
