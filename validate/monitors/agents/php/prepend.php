<?php
// tapscope monitors: runs before every script (auto_prepend_file) and logs when its request came and went.
/**
 * Two tab-separated files with a header line, times in microseconds since the epoch: requests.tsv, and
 * statements.tsv where the application tells of its statements. Rows of a request are written at its end, in one
 * piece; a request never waits for another's but for that write. The folder is the setting tapscope.events of
 * php.ini. PHP has no place to time statements from outside: the application's database layer appends
 * TapscopeRequest::$tag to each statement and calls statement().
 */

final class TapscopeRequest
{
    public static string $id = '';
    /** Appended to every statement; empty when nothing is monitored. */
    public static string $tag = '';
    private const COLUMNS = [
        'requests.tsv' => "request_id\tua_us\tud_us\tstatus\tworker\tinteraction\n",
        'statements.tsv' => "request_id\tordinal\tds_us\tdr_us\tthread_id\tform\n",
    ];
    /** Of one request: a script that asks in an endless loop must not fill the memory. */
    private const MOST_STATEMENTS = 10000;
    private static string $folder = '';
    private static int $began_us = 0;
    /** @var list<string> */
    private static array $statements = [];
    private static int $lost = 0;

    public static function now_us(): int
    {
        return (int) (microtime(true) * 1e6);
    }

    public static function begin(): void
    {
        self::$folder = (string) get_cfg_var('tapscope.events');
        self::$began_us = self::now_us();
        if (self::$folder === '' || PHP_SAPI === 'cli') {
            return;
        }
        $id = $_SERVER['HTTP_X_REQUEST_ID'] ?? '';
        // What may stand in an SQL comment: nothing that could end it.
        if (preg_match('/^[A-Za-z0-9_.:@-]{1,128}$/D', $id) === 1) {
            self::$id = $id;
            self::$tag = " /*ID=$id*/";
        }
        // Shutdown functions of the application are registered later and may ask the database: a function that
        // is registered during the shutdown runs after all of them.
        register_shutdown_function(static fn () => register_shutdown_function([self::class, 'end']));
    }

    /** The application sent a statement on the connection `thread` and has its answer. */
    public static function statement(int $sent_us, int $received_us, int $thread): void
    {
        $ordinal = count(self::$statements);
        if ($ordinal >= self::MOST_STATEMENTS) {
            self::$lost++;
        } elseif (self::$tag !== '') {
            self::$statements[] = self::$id . "\t$ordinal\t$sent_us\t$received_us\t$thread\ttext\n";
        }
    }

    public static function end(): void
    {
        $id = self::$id === '' ? '-' : self::$id;
        $ended_us = self::now_us();
        $path = strtr((string) strtok($_SERVER['REQUEST_URI'] ?? '', '?'), "\t\r\n", '   ');
        $status = http_response_code();
        self::append('requests.tsv', "$id\t" . self::$began_us . "\t$ended_us\t$status\t" . getmypid() . "\t$path\n");
        $lost = self::$lost > 0 ? '#lost ' . self::$lost . "\n" : '';
        self::append('statements.tsv', implode('', self::$statements) . $lost);
    }

    private static function append(string $name, string $rows): void
    {
        $file = $rows === '' ? false : @fopen(self::$folder . '/' . $name, 'a');
        if ($file === false) {
            return;
        }
        flock($file, LOCK_EX);
        fwrite($file, fstat($file)['size'] === 0 ? self::COLUMNS[$name] . $rows : $rows);
        fclose($file);
    }
}

TapscopeRequest::begin();
