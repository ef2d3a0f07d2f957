<?php
/** WordPress's wp-config.php; every value comes from the environment, as the testbed's runs differ in them. */

define('DB_HOST', getenv('BLOG_DB_HOST'));
define('DB_NAME', getenv('BLOG_DB_NAME'));
define('DB_USER', getenv('BLOG_DB_USER'));
define('DB_PASSWORD', getenv('BLOG_DB_PASSWORD'));
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
$table_prefix = 'wp_';

// No secrets: the machines exist for a minute, in namespaces of their own.
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {
    define($name . '_KEY', 'key of ' . $name);
    define($name . '_SALT', 'salt of ' . $name);
}

// Application passwords over plain HTTP are for local sites only.
define('WP_ENVIRONMENT_TYPE', 'local');
define('WP_DEBUG', false);
define('WP_CONTENT_DIR', getenv('BLOG_ROOT') . '/wp-content');
// Nothing leaves the testbed, and nothing runs that no user asked for.
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('WP_AUTO_UPDATE_CORE', false);

require_once ABSPATH . 'wp-settings.php';
