-- The board's tables; content comes from dataset.py. As in many grown applications, some look-ups lack an index.
CREATE TABLE users (id INT PRIMARY KEY AUTO_INCREMENT, nick VARCHAR(32) NOT NULL UNIQUE,
  password CHAR(40) NOT NULL,  karma INT NOT NULL, moderator TINYINT NOT NULL, joined DATETIME NOT NULL,
  last_login DATETIME NULL, bio TEXT NOT NULL);
CREATE TABLE topics (id INT PRIMARY KEY, name VARCHAR(32) NOT NULL, description TEXT NOT NULL);
CREATE TABLE stories (id INT PRIMARY KEY AUTO_INCREMENT, topic_id INT NOT NULL, author_id INT NOT NULL,
  title VARCHAR(120) NOT NULL, body TEXT NOT NULL, posted DATETIME NOT NULL, day INT NOT NULL,
  comments INT NOT NULL, score INT NOT NULL, status TINYINT NOT NULL, KEY (topic_id, posted), KEY (author_id),
  KEY (day), KEY (posted), KEY (status));
CREATE TABLE comments (id INT PRIMARY KEY AUTO_INCREMENT, story_id INT NOT NULL, parent_id INT NOT NULL,
  author_id INT NOT NULL, posted DATETIME NOT NULL, subject VARCHAR(120) NOT NULL, body TEXT NOT NULL,
  score INT NOT NULL, KEY (story_id), KEY (parent_id), KEY (author_id));
CREATE TABLE tags (id INT PRIMARY KEY, name VARCHAR(24) NOT NULL UNIQUE);
CREATE TABLE story_tags (story_id INT NOT NULL, tag_id INT NOT NULL, KEY (story_id));
CREATE TABLE ratings (id INT PRIMARY KEY AUTO_INCREMENT, comment_id INT NOT NULL, user_id INT NOT NULL,
  value TINYINT NOT NULL, given DATETIME NOT NULL, KEY (comment_id, user_id));
CREATE TABLE messages (id INT PRIMARY KEY AUTO_INCREMENT, to_user INT NOT NULL, from_user INT NOT NULL,
  sent DATETIME NOT NULL, subject VARCHAR(200) NOT NULL, seen TINYINT NOT NULL);
CREATE TABLE watches (user_id INT NOT NULL, story_id INT NOT NULL, seen_comments INT NOT NULL, KEY (story_id));
CREATE TABLE sessions (token CHAR(16) PRIMARY KEY, user_id INT NOT NULL, started DATETIME NOT NULL);
CREATE TABLE moderations (id INT PRIMARY KEY AUTO_INCREMENT, story_id INT NOT NULL, moderator_id INT NOT NULL,
  verdict TINYINT NOT NULL, decided DATETIME NOT NULL, KEY (moderator_id));
