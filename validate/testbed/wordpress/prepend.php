<?php
/**
 * Runs before every script (auto_prepend_file): tells WordPress where it lives, brings the agent, and logs which
 * database connections the request had (checkouts.tsv, as the board does; README).
 */

define('ABSPATH', getenv('BLOG_ROOT') . '/');
require __DIR__ . '/agent.php';

final class Connections
{
    /** @var array<int, int> MariaDB thread id => when the connection was asked for */
    private static array $held = [];

    public static function connected(int $thread, int $asked_us): void
    {
        if (self::$held === []) {
            // After the shutdown functions of WordPress, which may still ask the database.
            register_shutdown_function(static fn () => register_shutdown_function([self::class, 'end']));
        }
        self::$held[$thread] = $asked_us;
    }

    public static function end(): void
    {
        $rows = '';
        foreach (self::$held as $thread => $asked_us) {
            $rows .= TapscopeRequest::$id . "\t$thread\t$asked_us\t" . TapscopeRequest::now_us() . "\n";
        }
        if (TapscopeRequest::$id !== '') {
            file_put_contents(get_cfg_var('tapscope.events') . '/checkouts.tsv', $rows, FILE_APPEND | LOCK_EX);
        }
    }
}
